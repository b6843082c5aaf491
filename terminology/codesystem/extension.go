package codesystem

// Extension is an extension of a concept.
type Extension struct {
	// Kind says which extension it is.
	Kind ExtensionKind

	// Value is its value[x] as a JSON member, "valueString":"x"; of ExtensionAlternate, the extensions in it.
	Value []byte
}

// ExtensionKind is an extension that answers use or repeat.
type ExtensionKind uint8

// The kinds of extensions, named as in their urls.
const (
	ExtensionAlternate ExtensionKind = iota + 1
	ExtensionOrder
	ExtensionLabel
	ExtensionWeight
	ExtensionStyle
	ExtensionXHTML
	ExtensionStandardsStatus
	ExtensionDescriptionID
	ExtensionConceptDefinition
	ExtensionDeprecated
	ExtensionReplacedBy
)

// extensionURLs are the extensions by url below [fhirjson.ExtensionBase]. Order and label have one url in code systems
// and another in value sets, with the same meaning.
var extensionURLs = map[string]ExtensionKind{
	"codesystem-alternate":                 ExtensionAlternate,
	"codesystem-conceptOrder":              ExtensionOrder,
	"valueset-conceptOrder":                ExtensionOrder,
	"codesystem-label":                     ExtensionLabel,
	"valueset-label":                       ExtensionLabel,
	"itemWeight":                           ExtensionWeight,
	"rendering-style":                      ExtensionStyle,
	"rendering-xhtml":                      ExtensionXHTML,
	"structuredefinition-standards-status": ExtensionStandardsStatus,
	"coding-sctdescid":                     ExtensionDescriptionID,
	"valueset-concept-definition":          ExtensionConceptDefinition,
	"valueset-deprecated":                  ExtensionDeprecated,
	"codesystem-replacedby":                ExtensionReplacedBy,
}
