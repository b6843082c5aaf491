package flow

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// consentScript is for pages with much to untick.
func consentScript(groups []page.ConsentGroup) string {
	hasParts := func(item page.ConsentItem) bool { return len(item.Parts) > 0 }
	if slices.ContainsFunc(groups, func(g page.ConsentGroup) bool { return slices.ContainsFunc(g.Items, hasParts) }) {
		return "consent"
	}
	return ""
}

// consentOffer is what the page offers to a person.
type consentOffer struct {
	user    *people.User
	earlier *consent.Approval // what they answered before, if that still counts; or nil
	lasting lasting
}

// consentGroup tells the groups of the consent page apart, in their order there.
type consentGroup int

const (
	patientRecords consentGroup = iota
	userRecords
	profile
	otherItems
	lastingAccess
	consentGroupCount
)

func groupOf(item string) consentGroup {
	scope, isResource := smart.ParseResourceScope(item)
	switch {
	case isResource && scope.Level == "patient":
		return patientRecords
	case isResource:
		return userRecords
	case item == client.OfflineAccess, item == client.OnlineAccess:
		return lastingAccess
	case strings.HasPrefix(item, claimItem), len(people.ClaimsOfScope([]string{item})) > 0:
		return profile
	}
	return otherItems
}

// groups are what can be unticked: records apart from what is known of the person.
func (o *consentOffer) groups(items []string, patient page.ConsentPatient) (shown []page.ConsentGroup) {
	var groups [consentGroupCount][]page.ConsentItem
	for _, item := range items {
		if !isFixed(item) {
			g := groupOf(item)
			groups[g] = append(groups[g], o.item(item))
		}
	}
	legends := [consentGroupCount]*page.Text{
		whoseRecords(patient), page.T("Health records of everybody you have access to"), page.T("About you"),
		page.T("Other permissions"), page.T("How long"),
	}
	for g, items := range groups {
		if len(items) > 0 {
			shown = append(shown, page.ConsentGroup{Legend: legends[g], Items: items})
		}
	}
	return shown
}

// whoseRecords says whose records scopes for a patient are about.
func whoseRecords(p page.ConsentPatient) *page.Text {
	switch {
	case p.Name != "":
		return page.T("Health records of %s", p.Name)
	case p.ID != "":
		return page.T("Health records of the patient with the id %s", p.ID)
	}
	return page.T("Your health records")
}

// item is an item's checkbox, with those by which less can be given.
func (o *consentOffer) item(item string) page.ConsentItem {
	choice := consent.ChoiceOf(item)
	names, asked := o.earlier.Ticked(&choice)
	box := consentBox{ticked: func(name string) bool { return !asked || names[name] }}
	shown := box.show(&choice, Describe(item, o.user))
	if scope, ok := smart.ParseResourceScope(item); ok {
		shown.Text, shown.Detail = dataOf(scope), verbs(scope.Permission)
	}
	if read, write, both := choice.Permissions(); both {
		scope, _ := smart.ParseResourceScope(item)
		shown.Permissions = []page.ConsentItem{
			{Name: itemField + read, Text: verbs(scope.Permission & consent.Reading), Ticked: box.ticked(read)},
			{Name: itemField + write, Text: verbs(scope.Permission & consent.Writing), Ticked: box.ticked(write)},
		}
	}
	shown.Limited = asked && shown.Ticked && box.untickedPart(&choice)
	if item == client.OfflineAccess {
		shown.Times = o.lasting.onPage()
	}
	return shown
}

// consentBox shows choices, ticked as they are to be offered.
type consentBox struct {
	ticked func(name string) bool
}

func (b consentBox) show(choice *consent.Choice, text *page.Text) page.ConsentItem {
	item := page.ConsentItem{Name: itemField + choice.Name, Text: text, Ticked: b.ticked(choice.Name)}
	for i := range choice.Parts {
		part := &choice.Parts[i]
		item.Parts = append(item.Parts, b.show(part, partWords[part.Kind()]))
	}
	return item
}

// untickedPart reports whether less than all of an item is ticked.
func (b consentBox) untickedPart(choice *consent.Choice) bool {
	read, write, both := choice.Permissions()
	if both && !(b.ticked(read) && b.ticked(write)) {
		return true
	}
	for i := range choice.Parts {
		if part := &choice.Parts[i]; !b.ticked(part.Name) || b.untickedPart(part) {
			return true
		}
	}
	return false
}
