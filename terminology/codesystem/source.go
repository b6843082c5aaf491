package codesystem

import (
	"io"
	"slices"
)

// Source is a built-in code system: a grammar, or a table that is read on first use. Each package below this one
// registers its sources with [Register].
type Source struct {
	// URL identifies the code system; Name is its name for users.
	URL, Name string

	// Version is empty if the code system is not versioned.
	Version string

	// CaseSensitive is CodeSystem.caseSensitive.
	CaseSensitive bool

	// Copyright is the notice that the license of the data requires.
	Copyright string

	// CommonCodes is the canonical of a grammar's value set of common codes. An expansion of all codes or of a filter contains
	// only common codes, and is marked as incomplete. Without CommonCodes, such an expansion is an error. For a [List] that
	// also accepts unlisted codes, it is the origin of the listed codes.
	CommonCodes string

	// ValueSetProperty is the property with the filter that selects the codes of the value set valueSet/[value], where valueSet
	// is a member of Members. Default: none.
	ValueSetProperty string

	// ReportsReason makes $validate-code report the reason for an invalid code as a separate issue. HL7's test suite
	// requires it for units and prohibits it for languages.
	ReportsReason bool

	// ValueSets are related ValueSet resources, such as CommonCodes, as concatenated JSON compressed with zstd. They are read
	// during startup, before the definitions that may replace them.
	ValueSets []byte

	// Content is CodeSystem.content or [LookupOnly]. Default: complete.
	Content string

	// Edition is another version that a [LookupOnly] responds to, normally the one without date of its edition. Default:
	// none.
	Edition string

	// Members are other members of the CodeSystem except concept, as a JSON object: title, publisher, valueSet,
	// hierarchyMeaning, property and so on. They are read during startup.
	Members string

	// System contains the concepts.
	System System
}

// LookupOnly is the content of a fragment without hierarchy and most names. It identifies single codes if no more complete
// version is loaded, but cannot list codes.
const LookupOnly = "stand-in"

var registeredSources []Source

// Register adds built-in code systems. Packages call it in init, so that a program has the code systems of the packages
// that it imports.
func Register(sources ...Source) { registeredSources = append(registeredSources, sources...) }

// Sources returns the registered code systems in registration order.
func Sources() []Source { return slices.Clone(registeredSources) }

// FileFormat is a file format of published codes, such as the order files of ICD-10-CM. The command fhir-convert
// converts such files to CodeSystem resources.
type FileFormat struct {
	// Name is the name of the format, such as icd10cm.
	Name string

	// Publisher is the publisher of the files, such as the CMS.
	Publisher string

	// File is a short description of the input file. Help explains where to get it.
	File, Help string

	// Convert writes a file as a CodeSystem in JSON with a version such as 2026.
	Convert func(out io.Writer, file io.Reader, version string) error
}

var fileFormats []FileFormat

// RegisterFormats adds formats. Packages call it in init.
func RegisterFormats(list ...FileFormat) { fileFormats = append(fileFormats, list...) }

// FileFormats returns the registered formats in registration order.
func FileFormats() []FileFormat { return slices.Clone(fileFormats) }
