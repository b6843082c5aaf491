package definitions

// Standing returns what users of a definition should know: always that it is deprecated or withdrawn; that it is retired,
// experimental or a draft only if the value set that uses it is not. Else it is empty.
func (d *Definition) Standing(vs *ValueSet) string {
	experimental := func(d *Definition) bool { return d.Experimental != nil && *d.Experimental }
	switch {
	case d.standardsStatus == "deprecated" || d.standardsStatus == "withdrawn":
		return d.standardsStatus
	case d.Status == "retired":
		if vs.Status != "retired" {
			return "retired"
		}
	case experimental(d):
		if !experimental(&vs.Definition) {
			return "experimental"
		}
	case d.Status == "draft" || d.standardsStatus == "draft":
		if vs.Status != "draft" && vs.standardsStatus != "draft" {
			return "draft"
		}
	}
	return ""
}
