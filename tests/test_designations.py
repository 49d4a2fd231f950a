"""What a question names exactly, and what holds it: a near miss never does."""

from __future__ import annotations

import pytest

from pointsman.text.designations import designations

DESIGNATION_CASES = [
    # question, what it names, texts that hold it, near misses
    (
        "what answers at 2001:DB8::1F:1?",
        "2001:DB8::1F:1",
        ["at 2001:db8::1f:1, the gateway", "[2001:db8::1f:1]:8080"],
        ["2001:db8::1f:2", "2001:db8::1:f1", "2001:db8::1f:11", "a:2001:db8::1f:1", "2001:db8::1f:1:2"],
    ),
    ("шлюз fe80::1ff:fe23:4567:890a", "fe80::1ff:fe23:4567:890a", ["FE80::1FF:FE23:4567:890A/64"], ["fe80::1ff:890a"]),
    ("::ffff:1是什么地址", "::ffff:1", ["地址::ffff:1在"], ["::ffff:2", "1::ffff:1"]),
    (
        "which device has 00:1a:2b:3c:4d:13?",
        "00:1a:2b:3c:4d:13",
        ["00-1A-2B-3C-4D-13", "001a.2b3c.4d13", "001A2B3C4D13"],
        ["00:1a:2b:3c:4d:14", "00:1a:2b:3c:4d:13:00"],
    ),
    ("устройство 001a.2b3c.4d13", "001a.2b3c.4d13", ["адрес 00:1A:2B:3C:4D:13"], ["00:1a:2b:3c:4d:14"]),
    ("哪个设备是00-1A-2B-3C-4D-13", "00-1A-2B-3C-4D-13", ["00:1a:2b:3c:4d:13"], ["00:1a:2b:3c:4d:14"]),
    (
        "who listens at 10.0.3.17:8080?",
        "10.0.3.17:8080",
        ["http://10.0.3.17:8080/health"],
        ["10.0.3.17:8081", "10.0.3.17 and 8080", "110.0.3.17:8080", "10.0.3.17:80800"],
    ),
    (
        "where is ISBN 978-3-16-148410-0",
        "978-3-16-148410-0",
        ["9783161484100", "978 3 16 148410 0"],
        ["978-3-16-148411-0"],
    ),
    ("книга 9783161484100", "9783161484100", ["978-3-16-148410-0"], ["978-3-16-148411-0"]),
    ("书号030640615X", "030640615X", ["0-306-40615-X", "0 306 40615 x"], ["0-306-40616-X", "0306406150"]),
    ("VIN 1HGCM82633A004352", "1HGCM82633A004352", ["1hgcm82633a004352"], ["1HGCM82633A004353"]),
    (
        "md5 d41d8cd98f00b204e9800998ecf8427e",
        "d41d8cd98f00b204e9800998ecf8427e",
        ["D41D8CD98F00B204E9800998ECF8427E"],
        [],
    ),
    (
        "id 550e8400-e29b-41d4-a716-446655440000",
        "550e8400-e29b-41d4-a716-446655440000",
        ["550E8400-E29B-41D4-A716-446655440000"],
        ["550e8400-e29b-41d4-a716-446655440001"],
    ),
    ("свойства H2SO4", "H2SO4", ["H2SO4", "H₂SO₄"], ["H2SO3"]),
    ("what is C6H12O6?", "C6H12O6", ["the sugar C6H12O6"], ["C6H12O7", "C6H10O6"]),
    ("машина А 123 ВС 177", "А 123 ВС 177", ["А123ВС177", "а123вс 177"], ["А123ВС77", "А124ВС177"]),
    ("京A·12345在哪", "京A·12345", ["京A12345", "京 A 12345", "京a·12345"], ["京A12346", "沪A12345", "京B12345"]),
    ("who owns 粤 B D12345?", "粤 B D12345", ["粤BD12345", "粤B·D12345"], ["粤BD12346", "粤CD12345"]),
    ("GBT19003-2016的要求", "GBT19003-2016", ["GB/T 19003-2016"], ["GB/T 19004-2016", "GB 19003-2016"]),
    ("JBT 8501", "JBT 8501", ["JB/T 8501-2013", "JBT8501"], ["JB/T 8502"]),
    ("ISOIEC27001 аудит", "ISOIEC27001", ["ISO/IEC 27001:2013"], ["ISO/IEC 27002"]),
    (
        "when is INV-2026-0417 due?",
        "INV-2026-0417",
        ["Invoice INV-2026-0417 of May", "inv 2026 0417", "INV2026-0417", "файл inv_2026_0417.pdf"],
        ["INV-2026-0416", "INV-2026-04170", "INV-2025-0417", "XINV-2026-0417", "INV-2026-0417/2", "INV-2026-417"],
    ),
    (
        "发票INV-2026-0417的金额是多少",
        "INV-2026-0417",
        ["发票INV-2026-0417的金额为三百元"],
        ["发票INV-2026-0418的金额"],
    ),
    ("сколько по счёту СЧ-0417", "СЧ-0417", ["счёт сч 0417 от мая", "СЧ0417"], ["СЧ-0471", "СЧ-417"]),
    (
        "what does ISO 9370 require",
        "ISO 9370",
        ["see ISO9370:2017", "ISO-9370"],
        ["ISO 9371", "ISO 19370", "ISO 93 70"],
    ),
    ("требования ГОСТ 7.32", "ГОСТ 7.32", ["по ГОСТ 7.32 оформляют", "ГОСТ7.32"], ["ГОСТ 7.33", "ГОСТ 732"]),
    ("error 0x80070057", "0x80070057", ["code 0x80070057."], ["0x80070058", "0x8007005"]),
    (
        "why ERR_CONNECTION_RESET?",
        "ERR_CONNECTION_RESET",
        ["err_connection_reset was met", "ErrConnectionReset"],
        ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION"],
    ),
    (
        "what is maxRetryCount by default",
        "maxRetryCount",
        ["set max_retry_count", "MAX_RETRY_COUNT = 3", "max-retry-count"],
        ["maxRetries", "retries at most"],
    ),
    ("where is os.path.join used", "os.path.join", ["call os.path.join(a)"], ["os.path.split"]),
    (
        "what is new in v1.12",
        "v1.12",
        ["Version 1.12 brings", "V1.12", "1.12 (May)"],
        ["v11.2", "1.12.3", "1.1.12", "1.2"],
    ),
    ("upgrade to 1.6.1", "1.6.1", ["v1.6.1", "release 1.6.1."], ["1.6.10", "1.61", "11.6.1", "1.6.1.2"]),
    ("что нового в версии 3.11", "версии 3.11", ["версия 3.11 быстрее"], ["версия 3.12", "3.11.4"]),
    (
        "invoice 417",
        "invoice 417",
        ["Invoice no. 417", "№417", "INV-417"],
        ["invoice 4170", "invoice 41", "1417", "41.7"],
    ),
    ("order #14833 status", "#14833", ["order 14833", "14,833", "№ 14833"], ["148330", "14,834"]),
    ("что в приказе № 616?", "приказе № 616", ["приказ №616 от мая", "No. 616"], ["приказ № 661", "№ 6160"]),
    ("订单号 20417 发货了吗", "订单号 20417", ["订单20417已发货"], ["订单20418"]),
    ("статья 159 о чём", "статья 159", ["Статья 159. Мошенничество"], ["статья 158", "1590"]),
    ("serial SN-00417-B", "SN-00417-B", ["sn 00417 b"], ["SN-0417-B", "SN-00417-C"]),
    ("what mends firmware 1.27?", "firmware 1.27", ["Firmware v1.27", "версия 1.27"], ["1.2.7", "12.7", "v1.27.1"]),
    ("что чинит прошивка 1.27", "прошивка 1.27", ["Прошивка v1.27 чинит"], ["прошивка 1.28", "11.27"]),
    ("固件1.27修复了什么", "固件1.27", ["固件v1.27修复了显示", "固件版本 1.27"], ["固件1.28", "固件11.27"]),
    (
        "whose account is DE89370400440532013000?",
        "DE89370400440532013000",
        ["Account DE89 3704 0044 0532 0130 00 belongs", "de89-3704-0044-0532-0130-00"],
        ["DE89 3704 0044 0532 0130 01", "DE89 3704 0044 0532 0130 000", "DE88 3704 0044 0532 0130 00"],
    ),
    (
        "счёт GB29 NWBK 6016 1331 9268 19",
        "GB29 NWBK 6016 1331 9268 19",
        ["GB29NWBK60161331926819", "GB29-NWBK-6016-1331-9268-19"],
        ["GB29NWBK60161331926818", "GB29 NWBK 6016 1331 9268"],
    ),
    (
        "银行卡4276380000123456是谁的",
        "4276380000123456",
        ["卡号4276 3800 0012 3456", "4276-3800-0012-3456"],
        ["4276 3800 0012 3457", "42763800001234567", "4276 3800 0012 345"],
    ),
    ("карта 4276 3800 0012 3456", "4276 3800 0012 3456", ["4276380000123456"], ["4276380000123465"]),
    (
        "who answers at +7 495 123 45 67?",
        "+7 495 123 45 67",
        ["тел. +7 (495) 123-45-67", "+74951234567"],
        ["+7 (495) 123-45-68", "495 123 45 67"],
    ),
    ("电话13812345678", "13812345678", ["手机138 1234 5678", "138-1234-5678"], ["138 1234 5679"]),
    ("call 8-800-555-35-35", "8-800-555-35-35", ["тел. 8 800 555 35 35"], ["8-800-555-35-36"]),
    (
        "科技爱好者周刊 第190期 封面图",
        "第190期",
        ["周刊（第 190 期）：桥", "190期", "第一百九十期", "weekly/issue-190.md", "выпуск № 190"],
        ["第 191 期", "第1900期", "第十九期", "1.190"],
    ),
    ("周刊 190 期的封面", "190 期", ["第190期", "第 190 期"], ["第 132 期", "第 1190 期"]),
    ("第 190 期", "第 190 期", ["第190期", "（第190期）"], ["第19期", "第180期"]),
    ("第十章讲了什么", "第十章", ["第10章 渡河", "第 10 章", "第十章"], ["第十一章", "第1章", "10章", "第10节"]),
    ("第3章的内容", "第3章", ["第三章", "第 3 章"], ["第13章", "第三十章", "第3页", "共3章"]),
    ("第2版有什么变化", "第2版", ["第二版", "第 2 版"], ["第12版", "第3版", "2版"]),
    ("第一百二十条规定了什么", "第一百二十条", ["第120条", "第 120 條"], ["第一百二十一条", "第一千一百二十条"]),
    ("обложка 190-го выпуска", "190-го выпуска", ["Выпуск 190", "190-й выпуск", "№190"], ["1190", "выпуск 191"]),
    ("выпуск №190 обложка", "выпуск №190", ["выпуск № 190", "190-й выпуск"], ["выпуск 19", "выпуск 1900"]),
    ("выпуск 190 обложка", "выпуск 190", ["190-й выпуск"], ["выпуск 132"]),
    ("what is in issue #190?", "issue #190", ["Issue 190", "No. 190", "第 190 期"], ["issue 191"]),
    (
        "what happens in chapter 3?",
        "chapter 3",
        ["Chapter 3. The river", "CHAPTER III\n", "第三章"],
        ["chapter 13", "3 km"],
    ),
    ("что в главе 3?", "главе 3", ["Глава 3", "ГЛАВА III", "Глава третья", "в 3-й главе"], ["Глава 13", "Глава XIII"]),
    ("3-я глава", "3-я глава", ["гл. 3", "Глава 3"], ["Глава 4", "3 главы"]),
    ("2 楼有什么", "2 楼", ["2楼：仓库", "二楼"], ["12楼", "十二楼", "第二章"]),
    ("国标GB/T19003", "GB/T19003", ["GB/T 19003-2016规定"], ["GB/T 19003.1-2016", "GB/T 1900-2016", "GB/T 19003-417"]),
    ("что задаёт ГОСТ 12003?", "ГОСТ 12003", ["ГОСТ 12003-2013"], ["ГОСТ 12003-20131"]),
    (
        "what does ISO-9370 say?",
        "ISO-9370",
        ["ISO 9370-1998, part 2"],
        ["ISO 9370-1998-2", "ISO 9370-2", "ISO 9371-1998"],
    ),
    ("volume 2 of the works", "volume 2", ["Том 2", "第二卷", "Volume II"], ["Volume III", "том 12", "volume 2.5"]),
    (
        "minutes of 25 October 2024",
        "25 October 2024",
        ["held on 2024-10-25", "25.10.2024г.", "2024年10月25日", "二〇二四年十月二十五日"],
        ["26 October 2024", "25 October 2023", "October 2024"],
    ),
    ("протокол 25.10.2024", "25.10.2024", ["25 октября 2024", "10/25/2024"], ["24.10.2024"]),
    ("2024年10月25日的会议", "2024年10月25日", ["2024-10-25 会议"], ["2024年10月26日"]),
    ("二零二四年十月二十五日的会议", "二零二四年十月二十五日", ["2024-10-25 会议"], ["二零二四年十月二十六日"]),
]

PLAIN_QUESTIONS = [
    "the 3 plans of 2024 under 300 euros",
    "a laptop with 16GB and 3.5mm jack",
    "what happened since 2024-01-01",
    "rules after 1 May 2026",
    "ten largest orders of Q3-2024",
    "第三届运动会和第四节比赛",
    "香港的第一条铁路",
    "120期间 120 期货",
    "第万期",
    "第三次会议",
    "закажи 5 стульев",
    "заказ 5 стульев",
    "a ratio of 1:2:3:4 at 10:30:45",
    "std::vector<int> and ab::cd",
    "京东10000元",
    "云服务20240人",
    "w4 and h1-2024",
    "what is the budget for FY2025",
    "COVID rules",
    "the top-10 list",
    "a 5-year plan",
    "25-й съезд",
    "JavaScript and YouTube",
    "с 25.10.2024 по 30.10.2024",
    "自2024年10月25日起的规定",
    "read-only access",
    "24/7 support in 2024/25",
    "10:30 or 11:45",
    "who wrote it?",
    "how much is 1,299.99 or 14 833,33",
    "a 4x4 grid",
    "policy 2024",
    "mail anna@x1-2.org or https://a-1.b-2.org/c-3",
    "vitamin B12 in ww1",
    "hashCode and IL2, K-12 in ABC 2001-02",
    "кислород-18",
    "article 5",
    "room 12, no. 4 and ALGOL 68",
    "RAM 16 GB",
    "USD 7.50",
    "GDP 2023",
    "3 комнаты до 50 м2",
    "预算300元以下",
    "2020-2024 годы",
    "room temperature 20 °C",
    "version control",
    "section heading",
    "a population of 1400000000",
    "в бюджете 1 000 000 рублей",
    "14 833,33 or 2 500 000 in 2019 2020 2021",
    "firmware for routers",
]


@pytest.mark.parametrize(("question", "designation", "holding", "missing"), DESIGNATION_CASES)
def test_what_is_named_is_held_in_any_notation_and_by_no_near_miss(
    question: str, designation: str, holding: list[str], missing: list[str]
) -> None:
    [name] = designations(question)
    assert name.text == designation
    assert [text for text in holding if not name.is_in(text)] == []
    assert [text for text in missing if name.is_in(text)] == []
    assert name.is_in(question)


@pytest.mark.parametrize("question", PLAIN_QUESTIONS)
def test_what_only_counts_or_narrows_is_not_named(question: str) -> None:
    assert designations(question) == ()


@pytest.mark.parametrize(
    ("question", "holder", "near_miss"),
    [
        ("weekly issue 132 cover", "Weekly, Issue 132: the cover", "issue 131, 132 pages"),
        ("ticket 4512 status", "Ticket #4512 is open", "ticket 45120"),
        ("contract 318 penalty clause", "the contracts no. 318 and 319", "contract 319 of 318 pages"),
        ("order 200 chairs", "Order 200: paper", "200 chairs, in order"),
        ("заказ 4512 статус", "По заказу № 4512 отказано", "заказ 4513"),
        ("приказ 616 отпуск", "Приказом №616 изменён отпуск", "приказ 6160"),
        ("заявка 318 срок", "сроки заявки 318", "заявка на 318 мест"),
        ("заказ 200 новых стульев", "Заказ 200. Бумага", "200 стульев на заказ"),
    ],
)
def test_a_kind_and_a_number_before_a_word_are_a_name_only_where_a_text_holds_both(
    question: str, holder: str, near_miss: str
) -> None:
    [name] = designations(question)
    assert not name.is_certain
    assert name.is_in(holder)
    assert not name.is_in(near_miss)


def test_several_things_are_named_in_order() -> None:
    assert [name.text for name in designations("compare INV-2026-0416 with order № 616 and v1.12")] == [
        "INV-2026-0416",
        "order № 616",
        "v1.12",
    ]
