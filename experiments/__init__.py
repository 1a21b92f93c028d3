"""The study: everything that measures. Imports from `jaxcnn`, never the other way."""
