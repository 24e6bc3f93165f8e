"""The log of this process: values to JSON, lines to a stream, a stream to segments."""
