// The browser may keep this page for its Back button, even with Cache-Control: no-store. The person may have signed out since.
addEventListener('pageshow', (shown) => {
	if (shown.persisted) {
		document.body.hidden = true;
		location.replace(location.href);
	}
});
