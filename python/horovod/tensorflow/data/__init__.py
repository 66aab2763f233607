"""TensorFlow's data service for the ranks of a job: docs/tensorflow.md."""
