"""Where samples come from: a folder, or a folder and a list of labels."""
