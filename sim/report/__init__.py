"""What is shown of a result: tables, figures, and the files of a results folder."""
