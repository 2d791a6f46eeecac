"""What changed in the generated code between two builds of a kernel: one true sentence, its proof, and its cost."""
