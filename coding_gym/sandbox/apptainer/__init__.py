"""The apptainer provider."""
