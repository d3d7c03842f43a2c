"""What any transport must do, as small experiments: see `swiftfl.transports.conformance`."""
