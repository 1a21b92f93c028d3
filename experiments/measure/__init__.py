"""Measuring, pure: numbers in, numbers out."""
