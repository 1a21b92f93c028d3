"""What a record shows beside its numbers: a look at the data, and what the network got wrong."""
