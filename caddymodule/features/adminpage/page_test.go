package adminpage

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page/pagetest"
)

func TestPagesInEachLanguage(t *testing.T) {
	t.Parallel()
	pagetest.CheckInEachLanguage(t, files, map[string]page.View{
		"admin-empty": {Data: overviewPage{Person: page.Person{Name: "Alice"}}},
		"admin": {Data: overviewPage{
			Person: page.Person{Name: "Alice Adams", Detail: "alice@example.org"}, Done: page.T("It is added."), Search: "a",
			Apps: entryList{More: true, Items: []entryItem{
				{Name: "a", Title: "App", Note: page.T("waits for approval"), Since: "2026-05-01", Address: "/oauth2/admin?kind=clients&name=a"}, {Name: "b", Title: "b", Note: page.T("in the configuration")},
			}},
			People: entryList{Items: []entryItem{{Name: "wendy", Title: "Wendy", Note: page.T("in the store"), Problem: "duplicate user wendy", Disabled: true}}},
		}},
		"adminentry-newapp":     {Data: entryPage{App: true, New: true}},
		"adminentry-newperson":  {Data: entryPage{New: true}},
		"adminentry-app":        {Data: entryPage{App: true, Name: "a", Problem: "no", Renews: true}},
		"adminentry-person":     {Data: entryPage{Name: "wendy", Disabled: true, Renews: true}},
		"adminentry-own":        {Data: entryPage{Name: "alice", Own: true}},
		"adminentry-registered": {Data: entryPage{App: true, Name: "a", Title: "App", Registered: true, Waits: true}},
		"adminsecret":           {Data: secretPage{"wendy", false, "abc"}},
		"adminsecret-app":       {Data: secretPage{"a", true, "abc"}},
	})
}
