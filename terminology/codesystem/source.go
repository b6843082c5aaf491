package codesystem

import (
	"io"
	"slices"
)

// Source is a built-in code system: a grammar, or a table that is read on first use. Each package below this one registers its
// sources with [Register].
type Source struct {
	// URL identifies the code system. Name is displayed to users.
	URL, Name string

	// Version is the version, or empty if the code system is not versioned.
	Version string

	// CaseSensitive is CodeSystem.caseSensitive. Default: false.
	CaseSensitive bool

	// Copyright is the notice that the license of the data requires.
	Copyright string

	// CommonCodes is the canonical of a value set that contains the common codes of a grammar. An expansion of all codes or of
	// a filter contains only common codes and is marked as incomplete. If CommonCodes is empty, such an expansion is an error.
	// For a [List] that also accepts unlisted codes, CommonCodes is the URL from which the listed codes originate.
	CommonCodes string

	// ValueSetProperty is the property that selects the codes of the implicit value sets [valueSet]/[value], where valueSet is
	// specified in Members. Default: none, there are no implicit value sets.
	ValueSetProperty string

	// ReportsReason makes $validate-code report why a code is invalid as a separate issue. HL7's test suite requires this for
	// units and prohibits it for languages.
	ReportsReason bool

	// ValueSets contains related ValueSet resources, such as CommonCodes, as concatenated JSON compressed with zstd. They are
	// read during startup, before any definitions that may replace them.
	ValueSets []byte

	// Content is CodeSystem.content or [LookupOnly]. Default: complete.
	Content string

	// Edition is another version to which a [LookupOnly] source responds, usually the edition without a date. Default: none.
	Edition string

	// Members contains the other members of the CodeSystem, except concept, as a JSON object: title, publisher, valueSet,
	// hierarchyMeaning, property and so on. They are read during startup.
	Members string

	// EditionName names the edition in messages about the version. Default: none.
	EditionName string

	// IsDefaultEdition makes a reference without a version resolve to this version rather than to one of another edition.
	IsDefaultEdition bool

	// System provides the concepts. Required.
	System System
}

// LookupOnly is the content of a fragment that lacks the hierarchy and most names. Single codes are looked up in it if no
// more complete version is loaded, but it cannot list codes.
const LookupOnly = "stand-in"

var registeredSources []Source

// Register adds built-in code systems. Packages call it in init, so that importing a package is enough to add its code systems.
func Register(sources ...Source) { registeredSources = append(registeredSources, sources...) }

// Sources returns the registered code systems in registration order.
func Sources() []Source { return slices.Clone(registeredSources) }

// FileFormat is a file format in which codes are published, such as the order files of ICD-10-CM. The command fhir-convert
// converts such files to CodeSystem resources.
type FileFormat struct {
	// Name is the name of the format, such as icd10cm.
	Name string

	// Publisher is the publisher of the files, such as the CMS.
	Publisher string

	// File is a short description of the input file. Help explains where to get it.
	File, Help string

	// Convert writes a file as a CodeSystem in JSON. version is the version of the CodeSystem, such as 2026.
	Convert func(out io.Writer, file io.Reader, version string) error
}

var fileFormats []FileFormat

// RegisterFormats adds file formats. Packages call it in init.
func RegisterFormats(list ...FileFormat) { fileFormats = append(fileFormats, list...) }

// FileFormats returns the registered file formats in registration order.
func FileFormats() []FileFormat { return slices.Clone(fileFormats) }
