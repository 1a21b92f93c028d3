"""What studies run: training set-ups, pipelines, pretrained networks, synthetic steps."""
