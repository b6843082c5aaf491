# Writes the registry of the npm package language-subtag-registry as IANA does (RFC 5646 §3.1.1), without the fields that are not used.
def field($name): (.[$name] // empty) | if type == "array" then .[] else . end | "\n\($name): \(.)";
"File-Date: \($meta[0]["File-Date"])" +
  ([.[] | "\n%%" + ([field("Type", "Subtag", "Tag", "Description", "Deprecated", "Preferred-Value", "Prefix", "Suppress-Script")] | add)] | add)
