"""Programs that the restricted backend refuses, and programs that it runs."""
