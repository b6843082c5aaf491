package conformance

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
)

func brandsPlan() testPlan {
	return testPlan{
		name: "Inferno: smart_access_brands",
		text: "`user_access_brands` with a file. The gateway, not the HL7 validator, checks the resources against their profiles.",
		modules: []testModule{
			{id: "smart_access_brands_retrieve_bundle", checks: "200, at the address in the SMART configuration, for scripts of all origins, with an ETag", run: moduleRetrieveBrands},
			{id: "smart_access_brands_valid_bundle", checks: "a non-empty collection with a timestamp", run: moduleValidBrandsBundle},
			{id: "smart_access_brands_valid_endpoints", checks: "each Endpoint has the members that its profile requires, and a brand", run: moduleValidBrandEndpoints},
			{id: "smart_access_brands_valid_endpoint_urls", checks: "a CapabilityStatement at each Endpoint", run: moduleValidEndpointURLs},
			{id: "smart_access_brands_valid_brands", checks: "each brand has the members that its profile requires; its portals' endpoints are its own and in the Bundle", run: moduleValidBrands},
		},
	}
}

// brandResource contains the members of Organization and Endpoint that the modules check.
type brandResource struct {
	Type      string           `json:"resourceType"`
	ID        string           `json:"id"`
	Name      string           `json:"name"`
	Status    string           `json:"status"`
	Address   json.RawMessage  `json:"address"`
	Telecom   []map[string]any `json:"telecom"`
	Contact   []map[string]any `json:"contact"`
	Payload   []any            `json:"payloadType"`
	Endpoint  []brandReference `json:"endpoint"`
	Extension []brandExtension `json:"extension"`
}

type brandExtension struct {
	URL       string           `json:"url"`
	Extension []brandExtension `json:"extension"`
	Endpoint  brandReference   `json:"valueReference"`
}

type brandReference struct {
	Reference string `json:"reference"`
}

type brandsBundle struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"`
	Entry     []struct {
		Resource brandResource `json:"resource"`
	} `json:"entry"`
}

// all returns the Bundle's resources of a type.
func (b brandsBundle) all(kind string) (list []brandResource) {
	for _, e := range b.Entry {
		if e.Resource.Type == kind {
			list = append(list, e.Resource)
		}
	}
	return list
}

// refers reports whether a brand in the Bundle references the Endpoint with the given id.
func (b brandsBundle) refers(id string) bool {
	return slices.ContainsFunc(b.all("Organization"), func(brand brandResource) bool {
		return slices.Contains(brand.Endpoint, brandReference{"Endpoint/" + id})
	})
}

func (p *relyingParty) brandsResponse() *http.Response {
	p.t.Helper()
	address, _ := p.smartConfiguration()["user_access_brand_bundle"].(string)
	r := httptest.NewRequest(http.MethodGet, strings.TrimPrefix(address, issuer), nil)
	r.Header.Set("Origin", infernoOrigin)
	return p.Send(r)
}

func (p *relyingParty) brands() (b brandsBundle) {
	p.t.Helper()
	if err := json.NewDecoder(p.brandsResponse().Body).Decode(&b); err != nil {
		p.t.Error(err)
	}
	return b
}

func moduleRetrieveBrands(p *relyingParty) {
	r := p.brandsResponse()
	if r.StatusCode != http.StatusOK || r.Header.Get("Access-Control-Allow-Origin") != "*" || !strings.HasPrefix(r.Header.Get("ETag"), "W/") {
		p.t.Errorf("status %d, header %v", r.StatusCode, r.Header)
	}
}

func moduleValidBrandsBundle(p *relyingParty) {
	if b := p.brands(); b.Type != "collection" || b.Timestamp == "" || len(b.Entry) == 0 {
		p.t.Errorf("%+v", b)
	}
}

func moduleValidBrandEndpoints(p *relyingParty) {
	b := p.brands()
	for _, e := range b.all("Endpoint") {
		versioned := slices.ContainsFunc(e.Extension, func(x brandExtension) bool { return strings.HasSuffix(x.URL, "/endpoint-fhir-version") })
		if e.Status == "" || len(e.Contact) == 0 || len(e.Payload) != 1 || !versioned || !b.refers(e.ID) {
			p.t.Errorf("%+v", e)
		}
	}
}

func moduleValidEndpointURLs(p *relyingParty) {
	for _, e := range p.brands().all("Endpoint") {
		var address string
		if err := json.Unmarshal(e.Address, &address); err != nil {
			p.t.Error(err)
		}
		var statement map[string]any
		r := p.Get(strings.TrimPrefix(address, issuer)+"/metadata", "")
		if err := json.NewDecoder(r.Body).Decode(&statement); err != nil || statement["resourceType"] != "CapabilityStatement" {
			p.t.Errorf("%s: %v %v", address, statement, err)
		}
	}
}

func moduleValidBrands(p *relyingParty) {
	b := p.brands()
	for _, brand := range b.all("Organization") {
		if brand.Name == "" || len(brand.Telecom) != 1 || brand.Telecom[0]["system"] != "url" || len(brand.Endpoint) == 0 {
			p.t.Errorf("%+v", brand)
		}
		for _, reference := range brand.Endpoint {
			if !slices.ContainsFunc(b.all("Endpoint"), func(e brandResource) bool { return reference.Reference == "Endpoint/"+e.ID }) {
				p.t.Errorf("%s is not in the Bundle", reference.Reference)
			}
		}
		for _, portal := range brand.Extension {
			for _, part := range portal.Extension {
				if part.URL == "portalEndpoint" && !slices.Contains(brand.Endpoint, part.Endpoint) {
					p.t.Errorf("%s is not the brand's", part.Endpoint.Reference)
				}
			}
		}
	}
}
