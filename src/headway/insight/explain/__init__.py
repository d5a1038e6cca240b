"""Why a request took as long as it did: where its time went, and because of whom."""
