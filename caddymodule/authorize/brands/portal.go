package brands

import "slices"

// The extensions of User Access Brand.
const (
	brandExtension  = "http://hl7.org/fhir/StructureDefinition/organization-brand"
	portalExtension = "http://hl7.org/fhir/StructureDefinition/organization-portal"
)

// part is one of the extensions within an extension.
type part struct {
	value  string // the name of its value
	repeat bool
	check  func(element)
}

func webPage(e element) { e.webAddress("https", "http") }
func words(e element)   { e.required() }

var brandParts = map[string]part{
	"brandLogo":        {"valueUrl", true, element.image},
	"brandLogoLicense": {"valueUrl", true, webPage},
	"brandBundle":      {"valueUrl", true, webPage},
}

var portalParts = map[string]part{
	"portalName":        {"valueString", false, words},
	"portalDescription": {"valueMarkdown", false, words},
	"portalUrl":         {"valueUrl", false, webPage},
	"portalLogo":        {"valueUrl", true, element.image},
	"portalLogoLicense": {"valueUrl", true, webPage},
	"portalEndpoint":    {"valueReference", true, func(element) {}},
}

// checkExtensions checks brand and portal extensions; others are left alone.
func checkExtensions(brand element, endpoints []string) {
	for _, extension := range brand.each("extension") {
		switch extension.member("url").required() {
		case brandExtension:
			checkParts(extension, brandParts)
		case portalExtension:
			checkParts(extension, portalParts)
			checkPortalEndpoints(extension, endpoints)
		}
	}
}

func checkParts(extension element, parts map[string]part) {
	seen := map[string]bool{}
	for _, e := range extension.each("extension") {
		name := e.member("url").required()
		part, known := parts[name]
		switch {
		case !known:
			e.fail("%.50q is no part of this extension", name)
		case seen[name] && !part.repeat:
			e.fail("%s is there twice", name)
		case !e.isAbsent(part.value):
			part.check(e.member(part.value))
		}
		seen[name] = true
	}
}

// checkPortalEndpoints is the invariant uab-1.
func checkPortalEndpoints(portal element, endpoints []string) {
	for _, e := range portal.each("extension") {
		reference := e.member("valueReference").member("reference")
		if e.member("url").text() == "portalEndpoint" && !slices.Contains(endpoints, reference.required()) {
			reference.fail("must also be in Organization.endpoint (uab-1)")
		}
	}
}
