package brands

import "slices"

const (
	versionExtension = "http://hl7.org/fhir/StructureDefinition/endpoint-fhir-version"
	connectionSystem = "http://terminology.hl7.org/CodeSystem/endpoint-connection-type"
	connectionCode   = "hl7-fhir-rest"
	payloadSystem    = "http://terminology.hl7.org/CodeSystem/endpoint-payload-type"
	payloadCode      = "none"
)

// checkEndpoint checks the rules of User Access Endpoint.
func checkEndpoint(endpoint element, bundle members) {
	endpoint.member("status").oneOf("active", "suspended", "error", "off", "entered-in-error", "test")
	connection := endpoint.member("connectionType")
	connection.member("system").oneOf(connectionSystem)
	connection.member("code").oneOf(connectionCode)
	endpoint.member("name").text()
	endpoint.member("address").webAddress("https", "http")
	checkVersions(endpoint)
	checkContact(endpoint)
	checkPayload(endpoint)
	if !slices.ContainsFunc(bundle.all("Organization"), func(brand element) bool { return refers(brand, endpoint, bundle) }) {
		endpoint.fail("no Organization of this Bundle has it as endpoint")
	}
}

func checkVersions(endpoint element) {
	versions := 0
	for _, extension := range endpoint.each("extension") {
		if extension.member("url").required() != versionExtension {
			continue
		}
		versions++
		if code := extension.member("valueCode"); !versionForm.MatchString(code.required()) {
			code.fail("must be a version of FHIR, such as 4.0.1")
		}
	}
	if versions == 0 {
		endpoint.member("extension").fail("%s is missing", versionExtension)
	}
}

// checkContact checks that there is a page for developers.
func checkContact(endpoint element) {
	pages := 0
	for _, contact := range endpoint.each("contact") {
		if contact.member("system").text() == "url" {
			pages++
			contact.member("value").webAddress("https")
		}
	}
	if pages == 0 {
		endpoint.member("contact").fail("needs one of the system url, a page for app developers")
	}
}

func checkPayload(endpoint element) {
	list := endpoint.each("payloadType")
	if len(list) != 1 || !slices.ContainsFunc(list[0].each("coding"), func(coding element) bool {
		return coding.member("system").text() == payloadSystem && coding.member("code").text() == payloadCode
	}) {
		endpoint.member("payloadType").fail("must be the one code %s of %s", payloadCode, payloadSystem)
	}
}
