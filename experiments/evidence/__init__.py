"""Evidence kept in a record beside its metrics: a data set summary, and the network's mistakes."""
