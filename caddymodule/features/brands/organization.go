package brands

import "slices"

// checkBrand checks the rules of User Access Brand.
func checkBrand(brand element, bundle members) {
	brand.member("name").required()
	for _, alias := range brand.each("alias") {
		alias.text()
	}
	checkWebsite(brand)
	for _, identifier := range brand.each("identifier") {
		checkIdentifier(identifier)
	}
	for _, address := range brand.each("address") {
		checkAddress(address)
	}
	checkCategories(brand)
	endpoints := checkEndpoints(brand, bundle)
	checkExtensions(brand, endpoints)
	checkParent(brand, bundle)
}

// checkWebsite checks the telecom: the one website, or why there is none.
func checkWebsite(brand element) {
	list := brand.each("telecom")
	if len(list) != 1 {
		brand.member("telecom").fail("must hold one website, but holds %d", len(list))
		return
	}
	website := list[0]
	website.member("system").oneOf("url")
	if !website.isAbsent("value") {
		website.member("value").webAddress("https", "http")
	}
	checkUse(website, "org-3")
}

// checkUse refuses homes: an organization has none.
func checkUse(e element, invariant string) {
	if use := e.member("use"); use.exists() && use.text() == "home" {
		use.fail("must not be home (%s)", invariant)
	}
}

func checkIdentifier(identifier element) {
	system, value := identifier.member("system"), identifier.member("value")
	value.required()
	if system.exists() && system.text() == URISystem && value.exists() && !isWebAddress(value.text(), "https", "http") {
		value.fail("%.100q must be a URL, as the system says", value.text())
	}
}

// URISystem is the system of identifiers that are URLs.
const URISystem = "urn:ietf:rfc:3986"

// checkAddress allows a state, a city with its state, both with a postal code or also a
// street, and a postal code alone. Where an address names a country, the state may be
// missing: most countries have none in their addresses.
func checkAddress(address element) {
	has := func(name string) bool { return address.member(name).exists() }
	checkUse(address, "org-2")
	switch {
	case !has("state") && !has("city") && !has("postalCode"):
		address.fail("needs a state, a city or a postalCode")
	case has("line") && !has("city"):
		address.fail("has a street, but no city")
	case has("city") && !has("state") && !has("country"):
		address.fail("has a city, but neither state nor country")
	case has("line") && !has("postalCode"):
		address.fail("has a street, but no postalCode")
	}
}

// checkCategories checks that codings name code and system. A brand may have types of other
// value sets too.
func checkCategories(brand element) {
	for _, category := range brand.each("type") {
		for _, coding := range category.each("coding") {
			coding.member("system").required()
			coding.member("code").required()
		}
	}
}

// checkEndpoints returns the references of Organization.endpoint.
func checkEndpoints(brand element, bundle members) (references []string) {
	for _, endpoint := range brand.each("endpoint") {
		bundle.resolve(endpoint, "Endpoint")
		references = append(references, endpoint.member("reference").text())
	}
	return references
}

// checkParent checks the depth of the hierarchy: a brand has its own portal, or is part of
// the brand that has it.
func checkParent(brand element, bundle members) {
	partOf := brand.member("partOf")
	if !partOf.exists() {
		return
	}
	if parent, ok := bundle.resolve(partOf, "Organization"); ok && parent.member("partOf").exists() {
		partOf.fail("is a brand that is itself partOf another: the hierarchy has two levels at most")
	}
}

// refers reports whether a brand names an Endpoint.
func refers(brand, endpoint element, bundle members) bool {
	return slices.ContainsFunc(brand.each("endpoint"), func(reference element) bool {
		text, _ := reference.member("reference").value.(string)
		return bundle[text].path == endpoint.path
	})
}

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

func words(e element) { e.required() }

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
