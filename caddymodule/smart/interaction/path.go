package interaction

// Path is the path below the base, without a slash at either end. No character in it needs encoding in a URL.
func (i Interaction) Path() string {
	switch i.Kind {
	case Capabilities:
		return "metadata"
	case TypeSearch:
		return i.Type
	case CompartmentSearch:
		return i.Compartment.String() + "/" + i.Type
	case SystemHistory, TypeHistory, InstanceHistory:
		return join(i.Type, i.ID, "_history")
	case VRead:
		return join(i.Type, i.ID, "_history", i.VersionID)
	default:
		return join(i.Type, i.ID, i.Operation)
	}
}

// join is path.Join for segments that are clean or empty.
func join(segments ...string) string {
	path := ""
	for _, segment := range segments {
		if path != "" && segment != "" {
			path += "/"
		}
		path += segment
	}
	return path
}
