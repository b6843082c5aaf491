// The authorization server as npm simple-oauth2 sees it.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { AuthorizationCode, ClientCredentials } from 'simple-oauth2';

import { expandGender, issuer, othersHear, signIn } from './person.mjs';

const redirect_uri = 'https://app.example.org/callback';
const tokens = { tokenHost: issuer, tokenPath: '/oauth2/token', revokePath: '/oauth2/revoke' };
const auth = { ...tokens, authorizePath: '/oauth2/authorize' };

for (const authorizationMethod of ['header', 'body']) {
	test(`code flow, refresh and revocation, credentials in the ${authorizationMethod}`, async () => {
		const app = new AuthorizationCode({
			client: { id: 'demo-confidential', secret: 'demo-secret' },
			auth,
			options: { authorizationMethod },
		});
		const end = await signIn(app.authorizeURL({ redirect_uri, scope: 'openid offline_access user/*.rs', state: 'of the app' }));
		assert.equal(end.searchParams.get('state'), 'of the app');
		const first = await app.getToken({ code: end.searchParams.get('code'), redirect_uri });
		assert.equal(first.expired(), false);
		assert.equal(await expands(first), 200);

		const second = await first.refresh();
		assert.notEqual(second.token.access_token, first.token.access_token);
		assert.notEqual(second.token.refresh_token, first.token.refresh_token);
		assert.equal(await expands(second), 200);

		await second.revoke('refresh_token');
		await assert.rejects(second.refresh(), (error) => error.data.payload.error === 'invalid_grant');
		await othersHear();
		assert.equal(await expands(second), 401, 'what a revoked refresh token gave is void too');
	});
}

test('a wrong code is invalid_grant', async () => {
	const app = new AuthorizationCode({ client: { id: 'demo-confidential', secret: 'demo-secret' }, auth });
	await assert.rejects(app.getToken({ code: 'wrong', redirect_uri }), (error) => error.data.payload.error === 'invalid_grant');
});

test('client credentials', async () => {
	const service = new ClientCredentials({ client: { id: 'demo-service', secret: 'demo-service-secret' }, auth: tokens });
	assert.equal(await expands(await service.getToken({ scope: 'system/*.rs' })), 200);
});

// expands is the status of an expansion that is asked for with a token.
async function expands({ token }) {
	const answer = await fetch(expandGender, { headers: { Authorization: `Bearer ${token.access_token}` } });
	return answer.status;
}
