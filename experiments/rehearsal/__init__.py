"""The study of an accelerator that is not attached: every program is compiled for it, none runs."""
