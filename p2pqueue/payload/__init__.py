"""Files of any size: cut into chunks, sealed into shards, listed in manifests, kept on a shelf."""
