package brands

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// MaxSize is the maximum size of a Bundle in bytes: enough for thousands of brands, but small enough to keep in memory.
const MaxSize = 16 << 20

// Bundle is a valid User Access Brands Bundle.
type Bundle struct {
	content   []byte
	etag      string // entity tag of the content
	timestamp time.Time
	primary   *smart.Identifier
}

// Primary returns the identifier of this server's brand. It is nil if the Bundle has only one brand and that brand has no
// identifier.
func (b *Bundle) Primary() *smart.Identifier { return b.primary }

// Parse parses and validates a Bundle. The error contains the path of each problem. The primary brand is the brand with the
// identifier primary or, if primary is nil, the brand with the Endpoint fhirBase.
func Parse(content []byte, fhirBase string, primary *smart.Identifier) (*Bundle, error) {
	if len(content) > MaxSize {
		return nil, fmt.Errorf("the Bundle has %d bytes: the maximum is %d", len(content), MaxSize)
	}
	root, issues, err := decode(content)
	if err != nil {
		return nil, err
	}
	resources := validateBundle(root)
	if err := issues.err(); err != nil {
		return nil, err
	}
	selected, err := choosePrimary(resources, fhirBase, primary)
	return &Bundle{content: content, etag: newETag(content), timestamp: root.member("timestamp").requiredInstant(), primary: selected}, err
}

// decode parses JSON. It returns an error for ambiguous JSON, such as duplicate names.
func decode(content []byte) (element, *problems, error) {
	issues := new(problems)
	root := element{path: "Bundle", problems: issues}
	if err := rawjson.Check(content); err != nil {
		return root, issues, err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if err := decoder.Decode(&root.value); err != nil {
		return root, issues, err
	}
	if _, ok := root.value.(map[string]any); !ok {
		return root, issues, errors.New("the Bundle is not a JSON object")
	}
	return root, issues, nil
}

// validateBundle checks the Bundle against the User Access Brands Bundle profile and returns its resources.
func validateBundle(root element) resourceIndex {
	root.checkStructure()
	root.member("resourceType").checkCode("Bundle")
	root.member("type").checkCode("collection")
	root.member("timestamp").requiredInstant()
	if meta := root.member("meta"); meta.exists() {
		meta.member("lastUpdated").requiredInstant()
	}
	if total := root.member("total"); total.exists() {
		total.addProblem("not allowed in a collection (bdl-1)")
	}
	return checkEntries(root)
}

func checkEntries(root element) resourceIndex {
	resources := resourceIndex{}
	for _, entry := range root.items("entry") {
		resources.addEntry(entry)
	}
	brands := resources.ofType("Organization")
	if len(brands) == 0 {
		root.member("entry").addProblem("has no brand: add an Organization")
	}
	for _, brand := range brands {
		checkMeta(brand)
		checkBrand(brand, resources)
	}
	for _, endpoint := range resources.ofType("Endpoint") {
		checkMeta(endpoint)
		checkEndpoint(endpoint, resources)
	}
	return resources
}

func checkMeta(resource element) {
	if lastUpdated := resource.member("meta").member("lastUpdated"); lastUpdated.exists() {
		lastUpdated.requiredInstant()
	}
}

// choosePrimary returns the identifier for the SMART configuration. Exactly one brand must have this identifier.
func choosePrimary(resources resourceIndex, fhirBase string, identifier *smart.Identifier) (*smart.Identifier, error) {
	if identifier == nil {
		brand, err := findBrand(resources, fhirBase)
		if err != nil {
			return nil, err
		}
		if identifier = preferredIdentifier(brand); identifier == nil {
			if len(resources.ofType("Organization")) > 1 {
				return nil, fmt.Errorf("%s.identifier: is missing; with several brands, this server's brand must have an identifier", brand.path)
			}
			return nil, nil
		}
	}
	if n := countIdentifier(resources, *identifier); n != 1 {
		return nil, fmt.Errorf("%d Organizations have the identifier %s: exactly one must have the primary brand's identifier", n, identifier)
	}
	return identifier, nil
}

var errAmbiguous = errors.New("several brands have this server's Endpoint: select one by its identifier with the option primary")

// findBrand returns the brand with this FHIR API as its Endpoint. If there are several, it returns the only one that has no
// partOf.
func findBrand(resources resourceIndex, fhirBase string) (element, error) {
	var all, top []element
	for _, brand := range resources.ofType("Organization") {
		for _, endpoint := range resources.ofType("Endpoint") {
			if isSameBase(endpoint.member("address").text(), fhirBase) && hasEndpoint(brand, endpoint, resources) {
				all = append(all, brand)
				if !brand.member("partOf").exists() {
					top = append(top, brand)
				}
			}
		}
	}
	switch {
	case len(all) == 0:
		return element{}, fmt.Errorf("no Endpoint has this server's FHIR base, %s, as its address: add one, or select this server's brand by its identifier with the option primary", fhirBase)
	case len(all) == 1:
		return all[0], nil
	case len(top) == 1:
		return top[0], nil
	}
	return element{}, errAmbiguous
}

func isSameBase(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

// identifiers returns the identifiers of a brand, except those without a value.
func identifiers(brand element) (list []smart.Identifier) {
	for _, identifier := range brand.items("identifier") {
		if value := identifier.member("value").text(); value != "" {
			list = append(list, smart.Identifier{System: identifier.member("system").text(), Value: value})
		}
	}
	return list
}

// preferredIdentifier returns the identifier to publish for a brand. It prefers a URL, as SMART recommends.
func preferredIdentifier(brand element) *smart.Identifier {
	list := identifiers(brand)
	for i := range list {
		if list[i].System == URISystem {
			return &list[i]
		}
	}
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

func countIdentifier(resources resourceIndex, target smart.Identifier) (n int) {
	for _, brand := range resources.ofType("Organization") {
		for _, identifier := range identifiers(brand) {
			if identifier == target {
				n++
			}
		}
	}
	return n
}

// checkBrand checks a brand against the User Access Brand profile.
func checkBrand(brand element, bundle resourceIndex) {
	brand.member("name").requiredText()
	for _, alias := range brand.items("alias") {
		alias.text()
	}
	checkWebsite(brand)
	for _, identifier := range brand.items("identifier") {
		checkIdentifier(identifier)
	}
	for _, address := range brand.items("address") {
		checkAddress(address)
	}
	checkCategories(brand)
	endpoints := checkEndpoints(brand, bundle)
	checkExtensions(brand, endpoints)
	checkParent(brand, bundle)
}

// checkWebsite checks Organization.telecom: it must contain one website, or the reason for its absence.
func checkWebsite(brand element) {
	list := brand.items("telecom")
	if len(list) != 1 {
		brand.member("telecom").addProblem("must have exactly one website, but has %d", len(list))
		return
	}
	website := list[0]
	website.member("system").checkCode("url")
	if !website.isAbsent("value") {
		website.member("value").checkURL("https", "http")
	}
	checkUse(website, "org-3")
}

// checkUse reports the use "home", which is not allowed for organizations.
func checkUse(e element, invariant string) {
	if use := e.member("use"); use.exists() && use.text() == "home" {
		use.addProblem("must not be home (%s)", invariant)
	}
}

func checkIdentifier(identifier element) {
	system, value := identifier.member("system"), identifier.member("value")
	value.requiredText()
	if system.exists() && system.text() == URISystem && value.exists() && !isWebURL(value.text(), "https", "http") {
		value.addProblem("%.100q is not a URL, but its system requires one", value.text())
	}
}

// URISystem is the identifier system of URLs.
const URISystem = "urn:ietf:rfc:3986"

// checkAddress checks the combination of address parts. A state, city or postal code is required. A line requires a city and a
// postal code. A city requires a state or, because most countries do not use states in addresses, a country.
func checkAddress(address element) {
	has := func(name string) bool { return address.member(name).exists() }
	checkUse(address, "org-2")
	switch {
	case !has("state") && !has("city") && !has("postalCode"):
		address.addProblem("must have a state, city or postalCode")
	case has("line") && !has("city"):
		address.addProblem("has a line but no city")
	case has("city") && !has("state") && !has("country"):
		address.addProblem("has a city but neither state nor country")
	case has("line") && !has("postalCode"):
		address.addProblem("has a line but no postalCode")
	}
}

// checkCategories checks that each coding has a code and a system. Codes from other value sets are allowed.
func checkCategories(brand element) {
	for _, category := range brand.items("type") {
		for _, coding := range category.items("coding") {
			coding.member("system").requiredText()
			coding.member("code").requiredText()
		}
	}
}

// checkEndpoints checks Organization.endpoint and returns its references.
func checkEndpoints(brand element, bundle resourceIndex) (references []string) {
	for _, endpoint := range brand.items("endpoint") {
		bundle.resolve(endpoint, "Endpoint")
		references = append(references, endpoint.member("reference").text())
	}
	return references
}

// checkParent checks the depth of the hierarchy: a brand may be part of a brand that is not itself part of another.
func checkParent(brand element, bundle resourceIndex) {
	partOf := brand.member("partOf")
	if !partOf.exists() {
		return
	}
	if parent, ok := bundle.resolve(partOf, "Organization"); ok && parent.member("partOf").exists() {
		partOf.addProblem("refers to a brand that is part of another brand: the hierarchy can have at most two levels")
	}
}

// hasEndpoint reports whether a brand's Organization.endpoint contains an Endpoint.
func hasEndpoint(brand, endpoint element, bundle resourceIndex) bool {
	return slices.ContainsFunc(brand.items("endpoint"), func(reference element) bool {
		text, _ := reference.member("reference").value.(string)
		return bundle[text].path == endpoint.path
	})
}

// Extensions of User Access Brand.
const (
	brandExtension  = "http://hl7.org/fhir/StructureDefinition/organization-brand"
	portalExtension = "http://hl7.org/fhir/StructureDefinition/organization-portal"
)

// nestedExtension describes an extension within a brand or portal extension.
type nestedExtension struct {
	valueElement string // name of the member with the value, such as valueUrl
	repeatable   bool
	check        func(element)
}

func checkWebURL(e element) { e.checkURL("https", "http") }

func checkText(e element) { e.requiredText() }

var brandExtensions = map[string]nestedExtension{
	"brandLogo":        {"valueUrl", true, element.checkLogo},
	"brandLogoLicense": {"valueUrl", true, checkWebURL},
	"brandBundle":      {"valueUrl", true, checkWebURL},
}

var portalExtensions = map[string]nestedExtension{
	"portalName":        {"valueString", false, checkText},
	"portalDescription": {"valueMarkdown", false, checkText},
	"portalUrl":         {"valueUrl", false, checkWebURL},
	"portalLogo":        {"valueUrl", true, element.checkLogo},
	"portalLogoLicense": {"valueUrl", true, checkWebURL},
	"portalEndpoint":    {"valueReference", true, func(element) {}},
}

// checkExtensions checks the brand and portal extensions. Other extensions are allowed.
func checkExtensions(brand element, endpoints []string) {
	for _, extension := range brand.items("extension") {
		switch extension.member("url").requiredText() {
		case brandExtension:
			checkNestedExtensions(extension, brandExtensions)
		case portalExtension:
			checkNestedExtensions(extension, portalExtensions)
			checkPortalEndpoints(extension, endpoints)
		}
	}
}

func checkNestedExtensions(extension element, parts map[string]nestedExtension) {
	seen := map[string]bool{}
	for _, e := range extension.items("extension") {
		name := e.member("url").requiredText()
		part, supported := parts[name]
		switch {
		case !supported:
			e.addProblem("%.50q is not defined in this extension", name)
		case seen[name] && !part.repeatable:
			e.addProblem("%s is repeated: only one is allowed", name)
		case !e.isAbsent(part.valueElement):
			part.check(e.member(part.valueElement))
		}
		seen[name] = true
	}
}

// checkPortalEndpoints checks the invariant uab-1 of the User Access Brand profile.
func checkPortalEndpoints(portal element, endpoints []string) {
	for _, e := range portal.items("extension") {
		reference := e.member("valueReference").member("reference")
		if e.member("url").text() == "portalEndpoint" && !slices.Contains(endpoints, reference.requiredText()) {
			reference.addProblem("must also be listed in Organization.endpoint (uab-1)")
		}
	}
}

const (
	versionExtension = "http://hl7.org/fhir/StructureDefinition/endpoint-fhir-version"
	connectionSystem = "http://terminology.hl7.org/CodeSystem/endpoint-connection-type"
	connectionCode   = "hl7-fhir-rest"
	payloadSystem    = "http://terminology.hl7.org/CodeSystem/endpoint-payload-type"
	payloadCode      = "none"
)

// checkEndpoint checks an Endpoint against the User Access Endpoint profile.
func checkEndpoint(endpoint element, bundle resourceIndex) {
	endpoint.member("status").checkCode("active", "suspended", "error", "off", "entered-in-error", "test")
	connection := endpoint.member("connectionType")
	connection.member("system").checkCode(connectionSystem)
	connection.member("code").checkCode(connectionCode)
	endpoint.member("name").text()
	endpoint.member("address").checkURL("https", "http")
	checkVersions(endpoint)
	checkContact(endpoint)
	checkPayload(endpoint)
	if !slices.ContainsFunc(bundle.ofType("Organization"), func(brand element) bool { return hasEndpoint(brand, endpoint, bundle) }) {
		endpoint.addProblem("is not the endpoint of any Organization in this Bundle")
	}
}

func checkVersions(endpoint element) {
	versions := 0
	for _, extension := range endpoint.items("extension") {
		if extension.member("url").requiredText() != versionExtension {
			continue
		}
		versions++
		if code := extension.member("valueCode"); !versionPattern.MatchString(code.requiredText()) {
			code.addProblem("must be a FHIR version such as 4.0.1")
		}
	}
	if versions == 0 {
		endpoint.member("extension").addProblem("%s is missing", versionExtension)
	}
}

// checkContact checks that Endpoint.contact includes a page for developers, and that all its pages have https URLs.
func checkContact(endpoint element) {
	pages := 0
	for _, contact := range endpoint.items("contact") {
		if contact.member("system").text() == "url" {
			pages++
			contact.member("value").checkURL("https")
		}
	}
	if pages == 0 {
		endpoint.member("contact").addProblem("must have a contact with the system url: a web page for app developers")
	}
}

func checkPayload(endpoint element) {
	list := endpoint.items("payloadType")
	if len(list) != 1 || !slices.ContainsFunc(list[0].items("coding"), func(coding element) bool {
		return coding.member("system").text() == payloadSystem && coding.member("code").text() == payloadCode
	}) {
		endpoint.member("payloadType").addProblem("must have exactly one type, with the code %s of %s", payloadCode, payloadSystem)
	}
}

// resourceIndex maps references to the resources of a Bundle.
type resourceIndex map[string]element

// addEntry adds the resource of a Bundle entry.
func (m resourceIndex) addEntry(entry element) {
	resource := entry.member("resource")
	for _, name := range []string{"request", "response", "search"} {
		if e := entry.member(name); e.exists() {
			e.addProblem("not allowed in a collection (bdl-2, bdl-3, bdl-4)")
		}
	}
	if !resource.exists() {
		resource.addProblem("is missing (bdl-5)")
		return
	}
	resource.member("resourceType").checkCode("Organization", "Endpoint")
	m.add(resource.member("id"), resourceTypeOf(resource)+"/"+resource.member("id").requiredID(), resource)
	m.addFullURL(entry.member("fullUrl"), resource)
}

func (m resourceIndex) addFullURL(address, resource element) {
	if !address.exists() {
		return
	}
	text := address.text()
	if !strings.Contains(text, ":") || strings.Contains(text, "/_history/") {
		address.addProblem("%.100q must be an absolute URI without a version (bdl-8)", text)
	}
	m.add(address, text, resource)
}

func (m resourceIndex) add(at element, name string, resource element) {
	if other, exists := m[name]; exists && other.path != resource.path {
		at.addProblem("%.100q is already used by %s", name, other.path)
	}
	m[name] = resource
}

func resourceTypeOf(resource element) string {
	kind, _ := resource.member("resourceType").value.(string)
	return kind
}

// ofType returns the resources of a type, sorted by reference.
func (m resourceIndex) ofType(kind string) []element {
	var list []element
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if strings.HasPrefix(name, kind+"/") {
			list = append(list, m[name])
		}
	}
	return list
}

// resolve returns the resource that a Reference refers to. The resource must be in the Bundle and have the type kind.
func (m resourceIndex) resolve(reference element, kind string) (element, bool) {
	text := reference.member("reference").requiredText()
	resource, ok := m[text]
	if text != "" && (!ok || resourceTypeOf(resource) != kind) {
		reference.addProblem("%.100q is not an %s in this Bundle", text, kind)
		return element{}, false
	}
	return resource, ok
}
