package authorize

// step is what each step of a sign-in needs: it reads the request again, and answers the
// browser.
type step struct {
	browsers  *browsers
	requests  *requests
	pages     *pages
	responses *responses
	trail     *recorder
}
