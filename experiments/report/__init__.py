"""Turns records into tables on the terminal and one HTML page. It never measures."""

from experiments.report.page import write_page
from experiments.report.summary import sentences
from experiments.report.terminal import print_plan, print_record, print_rows, print_table

__all__ = ["print_plan", "print_record", "print_rows", "print_table", "sentences", "write_page"]
