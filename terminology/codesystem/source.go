package codesystem

// Source is a code system whose concepts no CodeSystem resource holds, such as a grammar. A package below this one has one,
// and a line in the list of package definitions (sources.go) registers it.
type Source struct {
	// URL identifies the code system, and Name is for people.
	URL, Name string

	// Version is empty if the code system has none.
	Version string

	// CaseSensitive says that codes that differ by case are different.
	CaseSensitive bool

	// System is its concepts.
	System System
}
