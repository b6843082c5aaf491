package terminology

// conceptExtension is an extension of a concept.
type conceptExtension struct {
	kind  extensionKind
	value []byte // value[x] as a JSON member, "valueString":"x"; of extensionAlternate, the extensions in it
}

// extensionKind is one of the extensions that a terminology service has to know.
type extensionKind uint8

const (
	extensionAlternate extensionKind = iota + 1
	extensionOrder
	extensionLabel
	extensionWeight
	extensionStyle
	extensionXHTML
	extensionStandardsStatus
	extensionDescriptionID
	extensionConceptDefinition
	extensionDeprecated
	extensionReplacedBy
)

// extensionURLs are the extensions by their url below [extensionBase]. Order and label are known under
// one url in a code system and under another in a value set, with the same meaning.
var extensionURLs = map[string]extensionKind{
	"codesystem-alternate":                 extensionAlternate,
	"codesystem-conceptOrder":              extensionOrder,
	"valueset-conceptOrder":                extensionOrder,
	"codesystem-label":                     extensionLabel,
	"valueset-label":                       extensionLabel,
	"itemWeight":                           extensionWeight,
	"rendering-style":                      extensionStyle,
	"rendering-xhtml":                      extensionXHTML,
	"structuredefinition-standards-status": extensionStandardsStatus,
	"coding-sctdescid":                     extensionDescriptionID,
	"valueset-concept-definition":          extensionConceptDefinition,
	"valueset-deprecated":                  extensionDeprecated,
	"codesystem-replacedby":                extensionReplacedBy,
}

// extensionBase is the start of the urls of the extensions that FHIR itself defines.
const extensionBase = "http://hl7.org/fhir/StructureDefinition/"
