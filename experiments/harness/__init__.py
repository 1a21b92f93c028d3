"""The harness: what turns a study into records."""
