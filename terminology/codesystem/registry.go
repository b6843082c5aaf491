package codesystem

import (
	"io"
	"slices"
)

var registered []Source

// Register adds code systems that libraries with the built-in definitions know. Packages call it from init, so that a
// program has the code systems whose packages it imports.
func Register(sources ...Source) { registered = append(registered, sources...) }

// Registered returns the registered code systems, in the order of their registration.
func Registered() []Source { return slices.Clone(registered) }

// FileFormat is a format in which the codes of a code system are published, such as the order files of ICD-10-CM. The command
// fhir-convert converts a file of it to a CodeSystem resource.
type FileFormat struct {
	// Name is the name of the format, as in icd10cm.
	Name string

	// Publisher publishes the files, such as the CMS.
	Publisher string

	// File is a short description of the input file, and Help explains where to get it.
	File, Help string

	// Convert writes the CodeSystem of a file, of a version such as 2026, as JSON.
	Convert func(out io.Writer, file io.Reader, version string) error
}

var formats []FileFormat

// RegisterFormats adds formats. Packages call it from init.
func RegisterFormats(list ...FileFormat) { formats = append(formats, list...) }

// FileFormats returns the registered formats, in the order of their registration.
func FileFormats() []FileFormat { return slices.Clone(formats) }
