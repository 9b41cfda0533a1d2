"""SandboxFusion's protocol: runs of programs and of notebooks, for trainers that compare what they print."""
