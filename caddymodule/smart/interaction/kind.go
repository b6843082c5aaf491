package interaction

import "github.com/caddy-fhir/caddy-fhir/caddymodule/smart"

// Kind is what a request does. Its zero value is no interaction.
type Kind uint8

// The interactions of FHIR R4 (http.html#summary), the conditional ones by themselves.
const (
	// Capabilities is GET metadata.
	Capabilities Kind = iota + 1
	// Read is GET Type/id.
	Read
	// VRead is GET Type/id/_history/vid.
	VRead
	// InstanceHistory is GET Type/id/_history.
	InstanceHistory
	// TypeHistory is GET Type/_history.
	TypeHistory
	// SystemHistory is GET _history.
	SystemHistory
	// TypeSearch is GET Type or POST Type/_search.
	TypeSearch
	// SystemSearch is GET of the base or POST _search.
	SystemSearch
	// CompartmentSearch is GET Patient/id/Type or Patient/id/*, or POST with _search behind the Type or instead of the
	// asterisk.
	CompartmentSearch
	// Create is POST Type.
	Create
	// ConditionalCreate is POST Type with the header If-None-Exist.
	ConditionalCreate
	// Update is PUT Type/id. It may create the resource.
	Update
	// ConditionalUpdate is PUT Type with criteria.
	ConditionalUpdate
	// Patch is PATCH Type/id.
	Patch
	// ConditionalPatch is PATCH Type with criteria.
	ConditionalPatch
	// Delete is DELETE Type/id.
	Delete
	// ConditionalDelete is DELETE Type with criteria.
	ConditionalDelete
	// Bundle is POST to the base: a batch or a transaction, as the body says.
	Bundle
	// Operation is GET or POST of a $name, behind the base, a Type or a Type/id.
	Operation
)

// kindNames are the codes of the CapabilityStatement (R4 valueset-restful-interaction.html) where there is one.
var kindNames = [...]string{
	Capabilities:      "capabilities",
	Read:              "read",
	VRead:             "vread",
	InstanceHistory:   "history-instance",
	TypeHistory:       "history-type",
	SystemHistory:     "history-system",
	TypeSearch:        "search-type",
	SystemSearch:      "search-system",
	CompartmentSearch: "search-compartment",
	Create:            "create",
	ConditionalCreate: "conditional-create",
	Update:            "update",
	ConditionalUpdate: "conditional-update",
	Patch:             "patch",
	ConditionalPatch:  "conditional-patch",
	Delete:            "delete",
	ConditionalDelete: "conditional-delete",
	Bundle:            "bundle",
	Operation:         "operation",
}

// String is the kind's code in a CapabilityStatement, or a word like those where it has none.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return "unknown"
	}
	return kindNames[k]
}

// permissions is the table of SMART App Launch 2.2 ("Scopes for requesting FHIR Resources"). Conditional forms search
// first, and their answer tells what was found.
var permissions = [...]smart.Permission{
	Read:              smart.Read,
	VRead:             smart.Read,
	InstanceHistory:   smart.Read,
	TypeHistory:       smart.Search,
	SystemHistory:     smart.Search,
	TypeSearch:        smart.Search,
	SystemSearch:      smart.Search,
	CompartmentSearch: smart.Search,
	Create:            smart.Create,
	ConditionalCreate: smart.Create | smart.Search,
	Update:            smart.Update,
	ConditionalUpdate: smart.Update | smart.Search,
	Patch:             smart.Update,
	ConditionalPatch:  smart.Update | smart.Search,
	Delete:            smart.Delete,
	ConditionalDelete: smart.Delete | smart.Search,
	Operation:         0,
}

// Permission is all that the scopes for the type must permit. It is nothing for what scopes do not decide by
// themselves: capabilities are public, an operation is decided by its name, and a bundle by its entries.
func (i Interaction) Permission() smart.Permission {
	if int(i.Kind) >= len(permissions) {
		return 0
	}
	return permissions[i.Kind]
}
