package brands

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"
)

// Brand is an organization with one FHIR API, of which [Make] makes a Bundle.
type Brand struct {
	Name      string    // by which people recognize it. Required.
	Website   string    // its URL, or [AskedDeclined] or [AskedUnknown]. Required.
	Logo      Logo      // of the organization
	Addresses []Address // where it is
	Portals   []Portal  // where people see their records
	Endpoint  Endpoint  // where apps do
}

// Logo is an image, an https: or data: URL, and the page with the terms of its use.
type Logo struct {
	Image   string // default: there is none
	License string // default: none have to be agreed to
}

// Portal is where people of the organization see their records themselves.
type Portal struct {
	Name        string // default: there is none
	Website     string // its URL, or [AskedDeclined] or [AskedUnknown]
	Description string // for whom it is, and what is in it
	Logo        Logo   // of the portal
}

// Endpoint is the organization's FHIR API.
type Endpoint struct {
	Name       string // default: that of the brand
	Developers string // the https: URL of a page for developers. Required.
	Version    string // of FHIR. Default: [DefaultVersion].
}

// DefaultVersion is that of FHIR R4.
const DefaultVersion = "4.0.1"

const profiles = "http://hl7.org/fhir/smart-app-launch/StructureDefinition/user-access-"

// Make returns the Bundle of a brand. fhirBase is the URL of its FHIR API.
func Make(b Brand, fhirBase string) (*Bundle, error) {
	write := func(changed time.Time) ([]byte, error) { return json.Marshal(b.bundle(fhirBase, changed)) }
	content, err := write(time.Unix(0, 0))
	if err != nil {
		return nil, err
	}
	made, err := Read(content, fhirBase, nil)
	if err != nil {
		return nil, fmt.Errorf("the Bundle made of this: %w", err)
	}
	made.write = write
	return made, nil
}

func (b *Brand) bundle(fhirBase string, changed time.Time) *bundle {
	instant := changed.UTC().Format(time.RFC3339)
	of := func(profile string) meta { return meta{instant, []string{profiles + profile}} }
	return &bundle{
		ResourceType: "Bundle", Meta: of("brands-bundle"), Type: "collection", Timestamp: instant,
		Entry: []entry{
			{fhirBase + Path + "/Organization/brand", b.organization(of("brand"))},
			{fhirBase + Path + "/Endpoint/fhir", b.endpoint(of("endpoint"), fhirBase)},
		},
	}
}

func (b *Brand) organization(m meta) *organization {
	o := &organization{
		ResourceType: "Organization", ID: "brand", Meta: m, Active: true,
		Name: b.Name, Address: b.Addresses, Endpoint: []reference{{"Endpoint/fhir"}},
		Telecom: []contactPoint{{System: "url", Value: b.Website}},
	}
	if isReason(b.Website) {
		o.Telecom = []contactPoint{{System: "url", NoValue: absent(b.Website)}}
	}
	if logo := b.Logo.parts("brand"); len(logo) > 0 {
		o.Extension = append(o.Extension, extension{URL: brandExtension, Extension: logo})
	}
	for _, p := range b.Portals {
		o.Extension = append(o.Extension, extension{URL: portalExtension, Extension: p.parts()})
	}
	if website, ok := WebsiteIdentifier(b.Website); ok {
		o.Identifier = []Identifier{website}
	}
	return o
}

func (l Logo) parts(of string) (parts []extension) {
	if l.Image != "" {
		parts = append(parts, extension{URL: of + "Logo", Address: l.Image})
	}
	if l.License != "" {
		parts = append(parts, extension{URL: of + "LogoLicense", Address: l.License})
	}
	return parts
}

func (p Portal) parts() (parts []extension) {
	if p.Name != "" {
		parts = append(parts, extension{URL: "portalName", Text: p.Name})
	}
	if p.Description != "" {
		parts = append(parts, extension{URL: "portalDescription", Markdown: p.Description})
	}
	if isReason(p.Website) {
		parts = append(parts, extension{URL: "portalUrl", NoAddress: absent(p.Website)})
	} else if p.Website != "" {
		parts = append(parts, extension{URL: "portalUrl", Address: p.Website})
	}
	return append(append(parts, p.Logo.parts("portal")...), extension{URL: "portalEndpoint", Reference: &reference{"Endpoint/fhir"}})
}

func (b *Brand) endpoint(m meta, fhirBase string) *endpoint {
	e := b.Endpoint
	return &endpoint{
		ResourceType: "Endpoint", ID: "fhir", Meta: m,
		Extension: []extension{{URL: versionExtension, Code: cmp.Or(e.Version, DefaultVersion)}},
		Status:    "active", Connection: coding{connectionSystem, connectionCode}, Name: cmp.Or(e.Name, b.Name),
		Contact: []contactPoint{{System: "url", Value: e.Developers}},
		Payload: []codeableConcept{{[]coding{{payloadSystem, payloadCode}}}}, Address: fhirBase,
	}
}

func absent(reason string) *primitive {
	return &primitive{[]extension{{URL: absentReason, Code: reason}}}
}
