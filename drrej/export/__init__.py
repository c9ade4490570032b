"""A rejector as a file without drrej: the steps of its decision (`steps`), written in other languages."""
