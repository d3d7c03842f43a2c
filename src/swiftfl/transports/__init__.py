"""How models travel between real clients. Transports and codecs by name: `TRANSPORTS`, `CODECS`."""
