// Package vaccines implements the CDC's codes for vaccines (CVX) and manufacturers (MVX), to the extent that HL7 v2 contains
// them. SOURCE.md describes their origin.
package vaccines

import (
	_ "embed"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
)

//go:generate go run ./generate

//go:embed vaccines.json.zst
var vaccines []byte

//go:embed manufacturers.json.zst
var manufacturers []byte

const copyright = "Codes of the Centers for Disease Control and Prevention, public domain; as in HL7 FHIR R4, CC0"

// descriptionText is the description of both code systems.
const descriptionText = "This list ends in 2009 and lacks all later additions of the CDC, such as the COVID-19 vaccines. " +
	"To replace it, load the CDC's current list as a CodeSystem with this url and the content complete."

func init() { codesystem.Register(source, manufacturerSource) }

// source is CVX as of 2009, up to code 122. R4 has no later codes.
var source = codesystem.Source{
	URL: "http://hl7.org/fhir/sid/cvx", Name: "CVX", Version: "2009", CaseSensitive: true, Content: "fragment", Copyright: copyright,
	Members: `{"id":"cvx","title":"CVX: vaccines, up to code 122 of 2009","description":"` + descriptionText + `"}`,
	System:  embeddedtable.New(vaccines),
}

// manufacturerSource is MVX as of 2009.
var manufacturerSource = codesystem.Source{
	URL: "http://hl7.org/fhir/sid/mvx", Name: "MVX", Version: "2009", CaseSensitive: true, Content: "fragment", Copyright: copyright,
	Members: `{"id":"mvx","title":"MVX: manufacturers of vaccines, as of 2009","description":"` + descriptionText + `"}`,
	System:  embeddedtable.New(manufacturers),
}
