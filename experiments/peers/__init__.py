"""The same networks in PyTorch, in Keras on TensorFlow and in plain Flax, each in a process."""
