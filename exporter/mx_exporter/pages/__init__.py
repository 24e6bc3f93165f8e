"""What people look at in a browser: values in, HTML out. It knows no file and no socket."""
