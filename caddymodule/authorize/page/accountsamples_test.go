package page

import "time"

// accountSamples are views of the pages of one's own.
func accountSamples() map[string]View {
	alice, ago := Person{"Alice Adams", "alice@example.org"}, Plural("%d day ago", "%d days ago", 3)
	challenge := &Passkey{Options: `{"challenge":"AAAA"}`, Sealed: "sealed"}
	return map[string]View{
		"account-new": {Data: Account{Person: alice, Factors: AccountFactors{Local: true, CanPasskey: true}}},
		"account": {Data: Account{
			Person: alice, Done: T("The app no longer has access."),
			Apps: []AccountApp{{"growth-chart", "Growth Chart", ago, ago, T("It keeps access when you sign out."), []*Text{T("Your e-mail address")}, []AccountRecords{
				{T("Your health records"), ago, "2027-03-01"}, {T("Health records of %s", "Ada Lovelace"), ago, ""}, {T("Health records of the patient with the id %s", "p02"), ago, ""},
			}}, {"other", "Other", ago, nil, T("It has access until you sign out at the latest."), nil, nil}},
			Sessions: []AccountSession{
				{"a", T("%s on %s", "Firefox", "Windows"), ago, "", "192.0.2.1", true}, {"b", T("an unknown browser"), ago, "General Hospital", "", false},
			},
			Factors: AccountFactors{
				Local: true, App: ago, Recovery: 1, Any: true, CanPasskey: true,
				Passkeys: []AccountPasskey{{"a", "Telephone", ago, ago}, {"b", "Key", ago, nil}},
			},
		}},
		"account-configured":   {Data: Account{Person: alice, Factors: AccountFactors{Local: true, Configured: true, Any: true}}},
		"account-provider":     {Data: Account{Person: alice, Factors: AccountFactors{Provider: "General Hospital"}}},
		"account-elsewhere":    {Data: Account{Person: alice}},
		"appsetup":             {Policy: Policy{Images: "data:"}, Data: AppSetup{QR: "data:,", Secret: "ABCD EFGH"}},
		"appsetup-wrong":       {Data: AppSetup{Secret: "ABCD EFGH", Wrong: true, Wait: time.Minute}},
		"passkeysetup":         {Script: "passkey", Data: PasskeySetup{Name: "Firefox", Passkey: challenge, Wrong: true}},
		"recoverycodes":        {Data: RecoveryCodes{Codes: []string{"abcd-efgh-jkmn-pqrs"}, Done: T("Your passkey is set up.")}},
		"signin-account":       {Script: "passkey", Data: SignIn{Local: true, Passkey: challenge, Problem: SignInProblem{Passkey: true}}},
		"secondfactor-passkey": {Script: "passkey", Data: SecondFactor{Passkey: challenge, WrongPasskey: true}},
		"secondfactor-all":     {Script: "passkey", Data: SecondFactor{Code: true, App: true, Recovery: true, Passkey: challenge}},
	}
}
