package page_test

import (
	"maps"
	"os"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page/pagetest"
)

// samples returns views of every template, by name.
func samples() map[string]page.View {
	ways := []page.ProviderLink{{"General Hospital", "/oauth2/login/hospital"}, {"Google", "/oauth2/login/google"}}
	links := page.AppLinks{"Growth Chart", page.LogoOf("growth-chart"), "https://chart.example/policy", "https://chart.example/terms"}
	alice := page.Person{"Alice Adams", "alice@example.org"}
	return map[string]page.View{
		"signin":       {Data: page.SignIn{Client: "Growth Chart", Links: links, OffersPassword: true, AcceptsEmail: true, Providers: ways}},
		"signin-wrong": {Data: page.SignIn{Client: "Growth Chart", Username: "alice", Problem: page.SignInProblem{Failed: true}, OffersPassword: true}},
		"signin-wait":  {Data: page.SignIn{Client: "Growth Chart", Username: "alice", Problem: page.SignInProblem{Wait: 30 * time.Second, ProviderDown: "Clinic", BusyWait: time.Second}, OffersPassword: true}},
		"secondfactor": {Data: page.SecondFactor{Client: "Growth Chart", WrongCode: true}}, "secondfactor-wait": {Data: page.SecondFactor{Client: "Growth Chart", Wait: 90 * time.Second}},
		"refused": {Data: page.SignInRejected{Client: "Growth Chart", Person: alice, Provider: "Clinic", SupportsLogout: true}}, "refused-page": {Data: page.SignInRejected{Person: alice, Provider: "Clinic"}},
		"selectaccount": {Data: page.SelectAccount{Client: "Growth Chart", Person: alice}},
		"consent": {Data: page.Consent{
			Client: "Growth Chart", Links: links, RedirectHost: "chart.example", Person: alice, SelfRegistered: true, Patient: page.ConsentPatient{"ada", "Ada Lovelace", "1815-12-10"},
			RequiredItems: []*page.Text{page.T("See which patient you chose")}, Groups: []page.ConsentGroup{
				{page.T("Your health records"), []page.ConsentItem{{
					Name: "may patient/Condition.cruds", Text: page.T("conditions and diagnoses"), Detail: page.T("read"), PartlyTicked: true,
					Permissions: []page.ConsentItem{{Name: "may patient/Condition.cruds read", Text: page.T("read"), Ticked: true}},
					Parts:       []page.ConsentItem{{Name: "may patient/Condition.cruds problem-list-item", Text: page.T("problem list")}},
				}}},
				{page.T("How long access lasts"), []page.ConsentItem{{
					Name: "may offline_access", Text: page.T("Keep access when you’re not using the app"), Ticked: true,
					Times: []page.ConsentTime{{"", page.T("Until you end access, at most %s", page.Plural("%d day", "%d days", 90)), true}},
				}}},
			},
		}},
		"consent-id": {Data: page.Consent{Client: "Growth Chart", Person: alice, Patient: page.ConsentPatient{ID: "p02"}}},
		"continue":   {Data: page.Consent{Client: "Growth Chart", RedirectHost: "localhost:3000", SelfRegistered: true, Patient: page.ConsentPatient{Name: "Ada Lovelace"}}},
		"signout":    {Data: page.SignOut{Client: "Growth Chart"}}, "formpost": {Script: "submit", Data: page.FormPost{Client: "Growth Chart"}},
		"formpost-asks": {Data: page.FormPost{Client: "Growth Chart", Question: page.T("Try again, or contact your organization’s IT help desk.")}},
		"message":       {Data: page.Message{page.T("You’re signed out"), page.T("You can close this page."), "", &page.Link{"/", page.T("Go to %s", "General Hospital")}}},
		"message-detail": {Data: page.Message{Title: page.T("This link doesn’t work"), Detail: "The client_id is not registered.",
			Text: page.T("The app sent an invalid request. Go back to the app and try again. If you see this page again, send these details to the app’s developer:")}},
		"selectpatient": {Script: "search", Data: page.SelectPatient{Client: "Growth Chart", Searchable: true, Name: "Smith", HasMore: true, Patients: []page.Patient{
			{"1", "John Smith", "1970-05-01", "12345", "1 High Street, Springfield", page.T("male")}, {"2", "Jane Smith", "1972-01-12", "12346", "", page.T("female")}, {ID: "3"}}}},
		"selectpatient-down": {Data: page.SelectPatient{Client: "Growth Chart", Problem: page.ChoiceProblem{ServerDown: true}}},
		"selectencounter": {Data: page.SelectEncounter{Client: "Growth Chart", Patient: "John Smith", Problem: page.ChoiceProblem{NotPermitted: true},
			Encounters: []page.Encounter{{"1", "Check-up", "2026-05-01", "General Hospital"}, {ID: "2"}}}},
	}
}

// Every page can be rendered in every language, with all of its optional content.
func TestEveryPageInEveryLanguage(t *testing.T) {
	t.Parallel()
	all := samples()
	maps.Copy(all, accountSamples())
	pagetest.CheckInEachLanguage(t, os.DirFS("."), all)
}

// accountSamples returns views of the account pages, by name.
func accountSamples() map[string]page.View {
	alice, ago := page.Person{"Alice Adams", "alice@example.org"}, page.Plural("%d day ago", "%d days ago", 3)
	challenge := &page.Passkey{Options: `{"challenge":"AAAA"}`, Sealed: "sealed"}
	return map[string]page.View{
		"account-new": {Data: page.Account{Person: alice, Factors: page.AccountFactors{ManagedHere: true, SupportsPasskeys: true}}},
		"account": {Data: page.Account{
			Person: alice, Confirmation: page.T("The app no longer has access."),
			Apps: []page.AccountApp{{"growth-chart", "Growth Chart", ago, ago, page.T("Access continues after you sign out."), []*page.Text{page.T("Your email address")}, []page.AccountPatientAccess{
				{page.T("Your health records"), ago, "2027-03-01"}, {page.T("Health records of %s", "Ada Lovelace"), ago, ""}, {page.T("Health records of the patient with ID %s", "p02"), ago, ""},
			}}, {"other", "Other", ago, nil, page.T("Access ends when you sign out."), nil, nil}},
			Sessions: []page.AccountSession{
				{"a", page.T("%s on %s", "Firefox", "Windows"), ago, "", "192.0.2.1", true}, {"b", page.T("Unknown browser"), ago, "General Hospital", "", false},
			},
			Factors: page.AccountFactors{
				ManagedHere: true, App: ago, RecoveryCodes: 1, HasAny: true, SupportsPasskeys: true,
				Passkeys: []page.AccountPasskey{{"a", "Telephone", ago, ago}, {"b", "Key", ago, nil}},
			},
		}},
		"account-configured":   {Data: page.Account{Person: alice, Factors: page.AccountFactors{ManagedHere: true, AppConfigured: true, HasAny: true}}},
		"account-provider":     {Data: page.Account{Person: alice, Factors: page.AccountFactors{Provider: "General Hospital"}}},
		"account-elsewhere":    {Data: page.Account{Person: alice}},
		"appsetup":             {Policy: page.Policy{Images: "data:"}, Data: page.AppSetup{QR: "data:,", Secret: "ABCD EFGH"}},
		"appsetup-wrong":       {Data: page.AppSetup{Secret: "ABCD EFGH", WrongCode: true, Wait: time.Minute}},
		"passwordchange":       {Data: page.PasswordChange{UserName: "alice", MinLength: 12, MaxLength: 128, Problem: page.T("Your current password is incorrect."), WrongCurrent: true}},
		"passkeysetup":         {Script: "passkey", Data: page.PasskeySetup{Name: "Firefox", Passkey: challenge, Rejected: true}},
		"recoverycodes":        {Data: page.RecoveryCodes{Codes: []string{"abcd-efgh-jkmn-pqrs"}, Confirmation: page.T("Your passkey is set up.")}},
		"signin-account":       {Script: "passkey", Data: page.SignIn{OffersPassword: true, Passkey: challenge, Problem: page.SignInProblem{Passkey: true}}},
		"secondfactor-passkey": {Script: "passkey", Data: page.SecondFactor{Passkey: challenge, WrongPasskey: true}},
		"secondfactor-all":     {Script: "passkey", Data: page.SecondFactor{AcceptsCode: true, HasApp: true, HasRecoveryCodes: true, Passkey: challenge}},
	}
}
