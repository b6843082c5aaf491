package sample

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Description is what the CapabilityStatement says of the server.
const Description = "Sample FHIR server in memory, for trying out: synthetic records of people who do not exist. " +
	"Changes are lost when it is restarted. Not for real data."

// capabilities answers with the CapabilityStatement.
func capabilities(q request) (reply, error) {
	if mode := value(q.Parameters, "mode"); mode != "" && mode != "full" && mode != "normative" {
		return reply{}, unsupported("The CapabilityStatement has one mode, full.")
	}
	text, err := json.Marshal(object{
		"resourceType": "CapabilityStatement", "status": "active", "kind": "instance", "date": "2026-11-01", "fhirVersion": "4.0.1",
		"description":    Description,
		"software":       object{"name": "caddy-fhir sample server"},
		"implementation": object{"description": Description, "url": q.base},
		"format":         []string{"json", mediaType},
		"rest": []object{{
			"mode": "server", "resource": resources(),
			"interaction": codes("transaction", "batch", "search-system"),
			"operation":   []object{exportOperation("export")},
		}},
	})
	return answerWith(http.StatusOK, text), err
}

// resources are the types of R4 with what can be done with them, which are put together once.
var resources = sync.OnceValue(func() (list []object) {
	for _, t := range interaction.Types() {
		r := object{
			"type":        t,
			"interaction": codes("read", "vread", "update", "delete", "history-instance", "create", "search-type"),
			"versioning":  "versioned-update", "readHistory": true, "updateCreate": true,
			"conditionalCreate": true, "conditionalUpdate": true, "conditionalDelete": "single",
		}
		if params, includes := searches(t); len(params) > 0 {
			r["searchParam"] = params
			if len(includes) > 0 {
				r["searchInclude"] = includes
			}
		}
		switch t {
		case "Patient":
			r["operation"] = []object{{
				"name": "everything", "definition": "http://hl7.org/fhir/OperationDefinition/Patient-everything",
				"documentation": "By GET on one patient, with _type and _count.",
			}, exportOperation("patient-export")}
		case "Group":
			r["operation"] = []object{exportOperation("group-export")}
		}
		list = append(list, r)
	}
	return list
})

// exportOperation is a level of $export.
func exportOperation(definition string) object {
	return object{
		"name": "export", "definition": "http://hl7.org/fhir/uv/bulkdata/OperationDefinition/" + definition,
		"documentation": "By GET, with _type, _since and _outputFormat.",
	}
}

// searches are the search parameters of a type, and those by which it includes others.
func searches(resourceType string) (params []object, includes []string) {
	for _, p := range searchparam.Parameters(resourceType) {
		params = append(params, object{"name": p.Name, "type": p.Kind.String()})
		if p.Kind == searchparam.Reference {
			includes = append(includes, resourceType+":"+p.Name)
		}
	}
	return params, includes
}

// codes are interactions.
func codes(names ...string) (list []object) {
	for _, name := range names {
		list = append(list, object{"code": name})
	}
	return list
}
