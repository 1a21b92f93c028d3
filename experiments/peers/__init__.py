"""The same networks in PyTorch, in Keras on TensorFlow and in plain Flax, each in a process of its own, for the study of the same name."""
