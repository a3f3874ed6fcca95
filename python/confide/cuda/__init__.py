"""CUDA kernels and their Python faces; the only package that names CUDA.

`runtime` compiles a `.cu` file for a CUDA device, or the same file for the CPU, and launches its kernels.
"""
