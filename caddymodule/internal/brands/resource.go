package brands

// bundle is a Bundle as it is written.
type bundle struct {
	ResourceType string  `json:"resourceType"`
	Meta         meta    `json:"meta"`
	Type         string  `json:"type"`
	Timestamp    string  `json:"timestamp"`
	Entry        []entry `json:"entry"`
}

type meta struct {
	LastUpdated string   `json:"lastUpdated"`
	Profile     []string `json:"profile"`
}

type entry struct {
	FullURL  string `json:"fullUrl"`
	Resource any    `json:"resource"`
}

type organization struct {
	ResourceType string         `json:"resourceType"`
	ID           string         `json:"id"`
	Meta         meta           `json:"meta"`
	Extension    []extension    `json:"extension,omitempty"`
	Identifier   []Identifier   `json:"identifier,omitempty"`
	Active       bool           `json:"active"`
	Name         string         `json:"name"`
	Telecom      []contactPoint `json:"telecom"`
	Address      []Address      `json:"address,omitempty"`
	Endpoint     []reference    `json:"endpoint"`
}

type endpoint struct {
	ResourceType string            `json:"resourceType"`
	ID           string            `json:"id"`
	Meta         meta              `json:"meta"`
	Extension    []extension       `json:"extension"`
	Status       string            `json:"status"`
	Connection   coding            `json:"connectionType"`
	Name         string            `json:"name"`
	Contact      []contactPoint    `json:"contact"`
	Payload      []codeableConcept `json:"payloadType"`
	Address      string            `json:"address"`
}

type extension struct {
	URL       string      `json:"url"`
	Extension []extension `json:"extension,omitempty"`
	Address   string      `json:"valueUrl,omitempty"`
	NoAddress *primitive  `json:"_valueUrl,omitempty"`
	Text      string      `json:"valueString,omitempty"`
	Markdown  string      `json:"valueMarkdown,omitempty"`
	Code      string      `json:"valueCode,omitempty"`
	Reference *reference  `json:"valueReference,omitempty"`
}

// primitive is what stands beside a primitive value or, here, in its stead.
type primitive struct {
	Extension []extension `json:"extension"`
}

type contactPoint struct {
	System  string     `json:"system"`
	Value   string     `json:"value,omitempty"`
	NoValue *primitive `json:"_value,omitempty"`
}

type codeableConcept struct {
	Coding []coding `json:"coding"`
}

type coding struct {
	System string `json:"system"`
	Code   string `json:"code"`
}

type reference struct {
	Reference string `json:"reference"`
}

// Address is FHIR's data type, as far as brands have addresses.
type Address struct {
	Line       []string `json:"line,omitempty"`       // street and number
	City       string   `json:"city,omitempty"`       // town
	State      string   `json:"state,omitempty"`      // or province
	PostalCode string   `json:"postalCode,omitempty"` // zip code
	Country    string   `json:"country,omitempty"`    // by its ISO 3166 code
}

// Identifier is FHIR's data type, as far as brands are told apart by it.
type Identifier struct {
	System string `json:"system,omitempty"` // what the value is unique in
	Value  string `json:"value"`            // the identifier itself
}

// String writes an identifier as FHIR's searches do.
func (i Identifier) String() string { return i.System + "|" + i.Value }
