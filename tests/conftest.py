"""Shared by all tests: one torch thread (two on a busy machine are ten times slower), no network."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
