"""swiftfl inside other training libraries: callbacks for Lightning and for Hugging Face's Trainer."""
