package codesystem

// Use is Designation.use, a Coding.
type Use struct {
	// System, Code and Display are the members of the Coding.
	System, Code, Display string
}

// DesignationRow is a designation as it is read.
type DesignationRow struct {
	// Owner is the number of the concept.
	Owner uint32

	// Language and Use are indexes in [ConceptReader.Languages] and [ConceptReader.Uses].
	Language, Use uint16

	// Value is the designation, and Extension its extensions as a JSON array, or 0.
	Value, Extension TextRef
}

// ExtensionRow is an extension as it is read.
type ExtensionRow struct {
	// Owner is the number of the concept.
	Owner uint32

	// Kind says which extension it is.
	Kind ExtensionKind

	// Value is its value[x] as a JSON member; see [Extension].
	Value TextRef
}
